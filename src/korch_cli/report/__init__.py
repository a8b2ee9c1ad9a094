"""Records to text and JSON."""
