module kwire/events/load

go 1.21
