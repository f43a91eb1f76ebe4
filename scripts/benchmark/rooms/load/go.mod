module kwire/rooms/load

go 1.26.0

require (
	github.com/gobwas/ws v1.4.0
	github.com/nats-io/nats.go v1.55.0
	golang.org/x/sys v0.48.0
)

require (
	github.com/gobwas/httphead v0.1.0 // indirect
	github.com/gobwas/pool v0.2.1 // indirect
	github.com/klauspost/compress v1.20.0 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.57.0 // indirect
)
