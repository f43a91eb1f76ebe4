"""Five Kafka clients behind one interface, for tests of listeners, logins and rights.

Each client can write to a topic and read from it in a group; a refusal is raised as `Refused` with its kind. `login`
has the settings of a connection in the form of each client, `server` the server with a listener for every case.
"""
