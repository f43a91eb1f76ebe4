package main

import (
	"bytes"
	"fmt"
	"strconv"
)

// Target is a server under test.
type target interface {
	// Subscribe makes a connection that is subscribed and hands it to the readers. Every event's bytes go to take, in
	// order, on one goroutine; lost is called if the connection ends.
	subscribe(all *readers, room string, take func(event []byte), lost func(error)) error
	// Publisher sends events to one room; answered is called for each answer, on one goroutine.
	publisher(room string, answered func(error)) (publisher, error)
	// Ways are the ways to publish as fast as possible.
	ways() map[string]way
	makeRooms(given settings) (int, error)
	close()
}

// Publisher: what is sent leaves at the latest with flush.
type publisher interface {
	send(data []byte) error
	flush() error
	close()
}

func targetOf(given settings) (target, error) {
	address := "127.0.0.1:" + strconv.Itoa(given.port)
	switch given.target {
	case "kwire":
		return kwire{address}, nil
	case "nats":
		return newNats(address, given.isPlain)
	}
	return nil, fmt.Errorf("--target: kwire or nats, not %q", given.target)
}

// Payload is an event's data, a JSON object of a fixed size with the event's number in it.
type payload struct{ filling []byte }

const numberDigits = 9

var numberKey = []byte(`{"n":1`)

func newPayload(size int) payload {
	filling := size - len(`{"n":1000000000,"text":""}`)
	return payload{bytes.Repeat([]byte("x"), max(filling, 0))}
}

func (p payload) of(number int) []byte {
	return fmt.Appendf(nil, `{"n":1%0*d,"text":"%s"}`, numberDigits, number, p.filling)
}

// NumberIn finds the number of an event in whatever a server makes of it.
func numberIn(event []byte) (int, error) {
	at := bytes.Index(event, numberKey)
	if at < 0 || len(event) < at+len(numberKey)+numberDigits {
		return 0, fmt.Errorf("no event of ours: %.100q", event)
	}
	number := 0
	for _, digit := range event[at+len(numberKey) : at+len(numberKey)+numberDigits] {
		number = number*10 + int(digit-'0')
	}
	return number, nil
}
