"""Which clusters meet a need: index, prices, selectors, offers. Pure."""
