"""How commands reach a server: options, environment, profiles, and the clients of its Kafka and HTTP ports.

A setting comes from the first of these that has it: an option (also the file of --command-config), an environment
variable, the profile, the default.
"""
