"""Creates virtual machines in VMware vSphere, cloned from a template through vCenter."""
