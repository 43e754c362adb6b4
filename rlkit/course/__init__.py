"""What a teacher needs: student notebooks, grades, a class's runs in one interval, an install without a network."""
