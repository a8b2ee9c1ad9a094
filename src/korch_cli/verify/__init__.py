"""Whether two models agree, and which is faster."""
