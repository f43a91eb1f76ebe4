package main

import (
	"errors"
	"time"
)

// MakeRooms makes so many rooms with one event each.
func makeRooms(server target, given settings) (found, error) {
	return timed(given, server.makeRooms)
}

// MakeStreams makes so many streams of one subject: what a room of its own settings would be at NATS.
func makeStreams(server target, given settings) (found, error) {
	streams, ok := server.(nats)
	if !ok {
		return found{}, errors.New("only NATS has streams")
	}
	return timed(given, streams.makeStreams)
}

func timed(given settings, run func(settings) (int, error)) (found, error) {
	began := time.Now()
	made, err := run(given)
	return found{Events: made, Seconds: time.Since(began).Seconds()}, err
}
