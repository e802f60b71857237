"""Networks in the forms of other frameworks."""
