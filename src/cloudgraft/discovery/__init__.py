"""Registers remote clusters that share resources, with prices, offers and reservations."""
