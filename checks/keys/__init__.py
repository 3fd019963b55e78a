"""What several rooms say of a key: where it stands, which one a slip meant, why its value is refused."""
