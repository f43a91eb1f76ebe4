"""The event store on a cluster, without the cluster."""
