"""What an agent asks of zdoctor, as tools with JSON results."""
