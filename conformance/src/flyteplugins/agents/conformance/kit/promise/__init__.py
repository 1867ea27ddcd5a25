"""The checks, a module for each chapter of the promise."""
