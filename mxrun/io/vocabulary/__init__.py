"""Vocabularies: tokens of texts and their ids, what is learned of training, and files of them."""
