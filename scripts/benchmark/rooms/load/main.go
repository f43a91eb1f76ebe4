// Load for rooms: one program that publishes and subscribes at kwire (HTTP and WebSocket) and at a NATS server with
// JetStream, so that both are measured by the same code. It prints one JSON document with what it found.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	countMax    = 1_000_000
	silence     = 30 * time.Second // Nothing may take longer between two steps.
	nothingSent = "the server sent nothing for 30 s"
)

// Settings is what the command line says.
type settings struct {
	target      string
	port        int
	room        string
	way         string
	subscribers int
	events      int
	connections int
	window      int
	count       int
	valueBytes  int
	seconds     float64
	isPlain     bool
}

// Found is what a work reports. Samples are nanoseconds.
type found struct {
	Events        int     `json:"events"`
	Deliveries    int     `json:"deliveries"`
	Seconds       float64 `json:"seconds"`
	OwnCPUSeconds float64 `json:"own_cpu_seconds"`
	Samples       []int64 `json:"samples_ns"`
}

var works = map[string]func(target, settings) (found, error){
	"broadcast": broadcast,
	"saturate":  saturate,
	"publish":   publish,
	"rooms":     makeRooms,
	"streams":   makeStreams,
}

func main() {
	if len(os.Args) < 2 || works[os.Args[1]] == nil {
		fail(fmt.Errorf("usage: load broadcast|saturate|publish|rooms|streams [options]"))
	}
	var given settings
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&given.target, "target", "kwire", "kwire or nats")
	flags.IntVar(&given.port, "port", 0, "of the server on 127.0.0.1")
	flags.StringVar(&given.room, "room", "lobby", "the room")
	flags.StringVar(&given.way, "way", "", "how to publish: "+wayNames())
	flags.IntVar(&given.subscribers, "subscribers", 1, "each on a connection of its own")
	flags.IntVar(&given.events, "events", 1000, "to broadcast, one at a time")
	flags.IntVar(&given.connections, "connections", 1, "to publish on")
	flags.IntVar(&given.window, "window", 1, "events under way on each connection, or events of a batch")
	flags.IntVar(&given.count, "count", 1, "rooms or streams to make")
	flags.IntVar(&given.valueBytes, "value-bytes", 100, "size of an event's data")
	flags.Float64Var(&given.seconds, "seconds", 3, "how long")
	flags.BoolVar(&given.isPlain, "plain", false, "NATS: subscribe to the subject itself, not to the stream")
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	for name, value := range map[string]int{
		"subscribers": given.subscribers, "events": given.events, "connections": given.connections,
		"window": given.window, "count": given.count, "value-bytes": given.valueBytes,
	} {
		if value < 1 || value > countMax {
			fail(fmt.Errorf("--%s: 1 to %d", name, countMax))
		}
	}
	chosen, err := targetOf(given)
	if err != nil {
		fail(err)
	}
	result, err := works[os.Args[1]](chosen, given)
	chosen.close()
	if err != nil {
		fail(err)
	}
	result.OwnCPUSeconds = ownCPU()
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func ownCPU() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}
