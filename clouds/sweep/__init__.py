"""The crash sweep with drivers of real clouds: kill -9 around every commit, every call, and every request of a call."""
