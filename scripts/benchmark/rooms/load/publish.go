package main

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Way publishes on one connection until the time is over: it counts the events that were answered, and appends how
// long each request took where there is one answer for one request.
type way func(given settings, data payload, end time.Time, stored *atomic.Int64) ([]int64, error)

func wayNames() string {
	names := []string{}
	for _, known := range []map[string]way{kwire{}.ways(), nats{}.ways()} {
		for name := range known {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

func publish(server target, given settings) (found, error) {
	run := server.ways()[given.way]
	if run == nil {
		return found{}, fmt.Errorf("--way: there is no %q for %s", given.way, given.target)
	}
	var stored atomic.Int64
	samples := make([][]int64, given.connections)
	failures := make([]error, given.connections)
	var wait sync.WaitGroup
	began := time.Now()
	end := began.Add(time.Duration(given.seconds * float64(time.Second)))
	for index := range given.connections {
		wait.Add(1)
		go func() {
			defer wait.Done()
			samples[index], failures[index] = run(given, newPayload(given.valueBytes), end, &stored)
		}()
	}
	wait.Wait()
	result := found{Events: int(stored.Load()), Seconds: time.Since(began).Seconds()}
	for index := range given.connections {
		if failures[index] != nil {
			return result, failures[index]
		}
		result.Samples = append(result.Samples, samples[index]...)
	}
	return result, nil
}

// Pipelined keeps a window of events under way on a publisher of either server.
func pipelined(server target) way {
	return func(given settings, data payload, end time.Time, stored *atomic.Int64) ([]int64, error) {
		answers := make(chan error, given.window)
		sender, err := server.publisher(given.room, func(err error) { answers <- err })
		if err != nil {
			return nil, err
		}
		defer sender.close()
		patience := time.NewTicker(silence)
		defer patience.Stop()
		underWay, number := 0, 0
		for time.Now().Before(end) || underWay > 0 {
			for underWay < given.window && time.Now().Before(end) {
				if err := sender.send(data.of(number)); err != nil {
					return nil, err
				}
				number, underWay = number+1, underWay+1
			}
			if err := sender.flush(); err != nil {
				return nil, err
			}
			select {
			case err := <-answers:
				if err != nil {
					return nil, err
				}
				stored.Add(1)
				underWay--
			case <-patience.C:
				return nil, errSilence
			}
			for taken := true; taken; { // And whatever came with it, before the next are sent together.
				select {
				case err := <-answers:
					if err != nil {
						return nil, err
					}
					stored.Add(1)
					underWay--
				default:
					taken = false
				}
			}
		}
		return nil, nil
	}
}

// OneByOne sends an event when the one before is answered.
func oneByOne(server target) way {
	return func(given settings, data payload, end time.Time, stored *atomic.Int64) ([]int64, error) {
		answers := make(chan error, 1)
		sender, err := server.publisher(given.room, func(err error) { answers <- err })
		if err != nil {
			return nil, err
		}
		defer sender.close()
		var samples []int64
		patience := time.NewTicker(silence)
		defer patience.Stop()
		for number := 0; time.Now().Before(end); number++ {
			event := data.of(number)
			sent := time.Now()
			if err := sender.send(event); err != nil {
				return nil, err
			}
			if err := sender.flush(); err != nil {
				return nil, err
			}
			select {
			case err := <-answers:
				if err != nil {
					return nil, err
				}
			case <-patience.C:
				return nil, errSilence
			}
			samples = append(samples, int64(time.Since(sent)))
			stored.Add(1)
		}
		return samples, nil
	}
}
