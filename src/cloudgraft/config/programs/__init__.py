"""Files of programs other than the server for the autoscaler."""
