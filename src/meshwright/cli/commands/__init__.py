"""One module per verb; imported only when the verb is called."""
