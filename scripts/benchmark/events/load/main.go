// Load for the event store: one program that publishes over HTTP, receives webhooks, subscribes to everything and
// watches files, each within a count and a time. It prints one JSON document with what it found.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

const (
	countMax = 5_000_000
	silence  = 30 * time.Second // Nothing may take longer between two steps.
)

// Settings is what the command line says.
type settings struct {
	port        int
	topics      []string
	batch       int
	connections int
	events      int
	seconds     float64
	rate        int
	parallel    int
	subscribers int
	directory   string
}

// Found is what a work reports. Samples are nanoseconds.
type found struct {
	Events        int     `json:"events"`
	Deliveries    int     `json:"deliveries"`
	Seconds       float64 `json:"seconds"`
	OwnCPUSeconds float64 `json:"own_cpu_seconds"`
	Samples       []int64 `json:"samples_ns"`
}

var works = map[string]func(settings) (found, error){
	"publish":          publish,
	"webhook-backlog":  webhookBacklog,
	"webhook-latency":  webhookLatency,
	"subscribe-stored": subscribeStored,
	"subscribe-live":   subscribeLive,
	"files":            watchFiles,
}

func main() {
	if len(os.Args) < 2 || works[os.Args[1]] == nil {
		fail(fmt.Errorf("usage: load publish|webhook-backlog|webhook-latency|subscribe-stored|subscribe-live|files [options]"))
	}
	var given settings
	var topics string
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.IntVar(&given.port, "port", 0, "of the server's HTTP on 127.0.0.1")
	flags.StringVar(&topics, "topics", "", "names with commas between; events go to them in turn")
	flags.IntVar(&given.batch, "batch", 1, "events of a request")
	flags.IntVar(&given.connections, "connections", 1, "to publish on, one request under way on each")
	flags.IntVar(&given.events, "events", countMax, "at most so many")
	flags.Float64Var(&given.seconds, "seconds", 600, "at most so long")
	flags.IntVar(&given.rate, "rate", 1000, "events per second, where the load is steady")
	flags.IntVar(&given.parallel, "parallel", 1, "deliveries at a time; 1 is in order")
	flags.IntVar(&given.subscribers, "subscribers", 1, "each on a connection of its own")
	flags.StringVar(&given.directory, "directory", "", "where the files of the events are")
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	given.topics = strings.Split(topics, ",")
	for name, value := range map[string]int{
		"batch": given.batch, "connections": given.connections, "events": given.events, "rate": given.rate,
		"parallel": given.parallel, "subscribers": given.subscribers, "port": given.port, "topics": len(topics),
	} {
		if value < 1 || value > countMax {
			fail(fmt.Errorf("--%s: 1 to %d", name, countMax))
		}
	}
	result, err := works[os.Args[1]](given)
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
