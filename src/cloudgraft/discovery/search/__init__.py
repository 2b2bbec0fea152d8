"""Searches clusters that meet a need: index, prices, selectors, offers. Pure."""
