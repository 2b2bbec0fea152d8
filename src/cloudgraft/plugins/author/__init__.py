"""The plugin's side: what runs in the child process."""
