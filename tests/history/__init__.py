"""The checker of transactional histories is itself put to the proof: on good histories, and on planted anomalies."""
