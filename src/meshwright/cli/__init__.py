"""The command line: a thin shell over `meshwright.api`."""
