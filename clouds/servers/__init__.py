"""What plays a cloud on this machine: real servers where there are any, faithful fakes where there are none."""
