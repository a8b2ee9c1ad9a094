"""The vocabulary that all stages share; imports nothing else of korch."""
