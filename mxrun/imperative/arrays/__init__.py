"""Arrays: their memory, arithmetic, indices, copies, files and exchange with other libraries."""
