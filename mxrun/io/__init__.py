"""From records to batches: what a data set is, which part of it is read, and who fills a batch."""
