package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

var noContent = []byte("HTTP/1.1 204 No Content\r\n\r\n")

// Receiver answers every delivery with 204 at once. `got` is called with the number of the event and the time, by the
// goroutine of its connection, under a lock.
type receiver struct {
	listener net.Listener
	mutex    sync.Mutex
	got      func(number int, at time.Time)
	failed   chan error
}

func receive(got func(number int, at time.Time)) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	one := &receiver{listener: listener, got: got, failed: make(chan error, 1)}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go one.serve(connection)
		}
	}()
	return one, nil
}

func (r *receiver) url() string { return "http://" + r.listener.Addr().String() + "/hook" }

func (r *receiver) close() { r.listener.Close() }

func (r *receiver) fail(err error) {
	select {
	case r.failed <- err:
	default:
	}
}

func (r *receiver) serve(connection net.Conn) {
	defer connection.Close()
	reader := bufio.NewReaderSize(connection, bufferBytes)
	body := make([]byte, bufferBytes)
	for {
		_, size, err := readHead(reader)
		if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && size > len(body) {
			err = fmt.Errorf("a delivery of %d bytes", size)
		}
		if err == nil {
			_, err = io.ReadFull(reader, body[:size])
		}
		if err != nil {
			r.fail(err)
			return
		}
		at := time.Now()
		number := numberIn(body[:size])
		if number < 0 {
			r.fail(fmt.Errorf("no event of ours: %.100q", body[:size]))
			return
		}
		r.mutex.Lock()
		r.got(number, at)
		r.mutex.Unlock()
		if _, err := connection.Write(noContent); err != nil {
			return // The server may end a connection as soon as it has no more to send.
		}
	}
}

func register(given settings, url string) error {
	server, err := dial(given.port)
	if err != nil {
		return err
	}
	defer server.close()
	mode := `"mode":"ordered"`
	if given.parallel > 1 {
		mode = fmt.Sprintf(`"mode":"parallel","parallel":%d`, given.parallel)
	}
	return server.call(request("/webhooks", fmt.Appendf(nil, `{"url":"%s","topics":{"%s":null},%s}`,
		url, given.topics[0], mode)))
}

// WebhookBacklog stores events first and registers then: how fast are they delivered? Each has to come once, and in
// order if that is what was asked for.
func webhookBacklog(given settings) (found, error) {
	if err := publishAll(given); err != nil {
		return found{}, err
	}
	seen := make([]bool, given.events)
	count, done := 0, make(chan time.Time, 1)
	var hooks *receiver
	hooks, err := receive(func(number int, at time.Time) {
		if number >= len(seen) || seen[number] || (given.parallel == 1 && number != count) {
			hooks.fail(fmt.Errorf("event %d came as number %d", number, count))
			return
		}
		seen[number] = true
		if count++; count == len(seen) {
			done <- at
		}
	})
	if err != nil {
		return found{}, err
	}
	defer hooks.close()
	before, began := ownCPU(), time.Now()
	if err := register(given, hooks.url()); err != nil {
		return found{}, err
	}
	select {
	case at := <-done:
		seconds := at.Sub(began).Seconds()
		return found{Deliveries: count, Seconds: seconds, OwnCPUSeconds: ownCPU() - before}, nil
	case err := <-hooks.failed:
		return found{}, err
	case <-time.After(time.Duration(given.seconds * float64(time.Second))):
		hooks.mutex.Lock()
		defer hooks.mutex.Unlock()
		return found{}, fmt.Errorf("%d of %d events came within %g s", count, given.events, given.seconds)
	}
}

// WebhookLatency publishes one event at a time, waits until it has come, and then a little: how long does it take?
func webhookLatency(given settings) (found, error) {
	came := make(chan time.Time, 1)
	expected := 0
	var hooks *receiver
	hooks, err := receive(func(number int, at time.Time) {
		if number != expected {
			hooks.fail(fmt.Errorf("event %d came, not %d", number, expected))
			return
		}
		expected++
		came <- at
	})
	if err != nil {
		return found{}, err
	}
	defer hooks.close()
	if err := register(given, hooks.url()); err != nil {
		return found{}, err
	}
	server, err := dial(given.port)
	if err != nil {
		return found{}, err
	}
	defer server.close()
	pause := time.Second / time.Duration(given.rate)
	result, began := found{}, time.Now()
	end := began.Add(time.Duration(given.seconds * float64(time.Second)))
	for number := 0; number < given.events && time.Now().Before(end); number++ {
		sent := time.Now()
		if err := server.call(request("/events", eventsFrom(given.topics, number, 1))); err != nil {
			return found{}, err
		}
		select {
		case at := <-came:
			result.Samples = append(result.Samples, int64(at.Sub(sent)))
		case err := <-hooks.failed:
			return found{}, err
		case <-time.After(silence):
			return found{}, fmt.Errorf("event %d did not come", number)
		}
		time.Sleep(pause)
	}
	result.Events = len(result.Samples)
	result.Deliveries = len(result.Samples)
	result.Seconds = time.Since(began).Seconds()
	return result, nil
}
