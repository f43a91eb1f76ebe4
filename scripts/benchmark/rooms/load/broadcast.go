package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	subscribersAtOnce = 16 // Connections that are made at the same time.
	burstEvents       = 50
	burstsMax         = 1_000_000
)

var errSilence = errors.New(nothingSent)

// Audience is everybody who is subscribed to the room.
type audience struct {
	readers *readers
	failed  chan error
}

func gather(server target, given settings, take func(number int)) (*audience, error) {
	reading, err := newReaders()
	if err != nil {
		return nil, err
	}
	all := &audience{readers: reading, failed: make(chan error, 1)}
	places := make(chan struct{}, subscribersAtOnce)
	var wait sync.WaitGroup
	for range given.subscribers {
		places <- struct{}{}
		wait.Add(1)
		go func() {
			defer func() { <-places; wait.Done() }()
			if err := server.subscribe(reading, given.room, all.inOrder(take), all.fail); err != nil {
				all.fail(err)
			}
		}()
	}
	wait.Wait()
	select {
	case err := <-all.failed:
		reading.close()
		return nil, err
	default:
		return all, nil
	}
}

// InOrder checks that a subscriber gets every event once and in order.
func (a *audience) inOrder(take func(number int)) func([]byte) {
	expected := 0
	return func(event []byte) {
		number, err := numberIn(event)
		if err == nil && number != expected {
			err = fmt.Errorf("event %d came where %d was due", number, expected)
		}
		if err != nil {
			a.fail(err)
			return
		}
		expected++
		take(number)
	}
}

func (a *audience) fail(err error) {
	select {
	case a.failed <- err:
	default:
	}
}

func (a *audience) close() { a.readers.close() }

// Broadcast publishes one event at a time: from just before it is sent until the last subscriber has it. The next one
// is sent when everybody has it and the publisher has its answer.
func broadcast(server target, given settings) (found, error) {
	var missing atomic.Int64
	arrived := make(chan time.Time, 1)
	all, err := gather(server, given, func(int) {
		if missing.Add(-1) == 0 {
			arrived <- time.Now()
		}
	})
	if err != nil {
		return found{}, err
	}
	defer all.close()
	answered := make(chan error, 1)
	sender, err := server.publisher(given.room, func(err error) { answered <- err })
	if err != nil {
		return found{}, err
	}
	defer sender.close()
	data := newPayload(given.valueBytes)
	result := found{Samples: make([]int64, 0, given.events)}
	began := time.Now()
	for number := 0; number < given.events && time.Since(began).Seconds() < given.seconds; number++ {
		event := data.of(number)
		missing.Store(int64(given.subscribers))
		sent := time.Now()
		if err := errors.Join(sender.send(event), sender.flush()); err != nil {
			return result, err
		}
		isAnswered, isArrived := false, false
		patience := time.NewTimer(silence)
		for !isAnswered || !isArrived {
			select {
			case at := <-arrived:
				isArrived = true
				result.Samples = append(result.Samples, int64(at.Sub(sent)))
			case err := <-answered:
				if err != nil {
					return result, err
				}
				isAnswered = true
			case err := <-all.failed:
				return result, err
			case <-patience.C:
				return result, errSilence
			}
		}
		patience.Stop()
	}
	result.Seconds = time.Since(began).Seconds()
	result.Events = len(result.Samples)
	result.Deliveries = result.Events * given.subscribers
	return result, nil
}

// Saturate publishes in bursts and keeps two of them under way: the next one is sent when everybody has the last but
// one. So nobody falls behind, and the server is never without work.
func saturate(server target, given settings) (found, error) {
	var missing [2]atomic.Int64 // Of the bursts with an even and with an odd number.
	done := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	all, err := gather(server, given, func(number int) {
		if number%burstEvents == burstEvents-1 {
			if side := number / burstEvents % 2; missing[side].Add(-1) == 0 {
				done[side] <- struct{}{}
			}
		}
	})
	if err != nil {
		return found{}, err
	}
	defer all.close()
	refused := make(chan error, 1)
	sender, err := server.publisher(given.room, func(err error) {
		if err != nil {
			select {
			case refused <- err:
			default:
			}
		}
	})
	if err != nil {
		return found{}, err
	}
	defer sender.close()
	await := func(side int) error {
		patience := time.NewTimer(silence)
		defer patience.Stop()
		select {
		case <-done[side]:
			return nil
		case err := <-refused:
			return err
		case err := <-all.failed:
			return err
		case <-patience.C:
			return errSilence
		}
	}
	data := newPayload(given.valueBytes)
	began, bursts := time.Now(), 0
	for ; bursts < 2 || time.Since(began).Seconds() < given.seconds && bursts < burstsMax; bursts++ {
		side := bursts % 2
		if bursts >= 2 {
			if err := await(side); err != nil {
				return found{}, err
			}
		}
		missing[side].Store(int64(given.subscribers))
		for number := range burstEvents {
			if err := sender.send(data.of(bursts*burstEvents + number)); err != nil {
				return found{}, err
			}
		}
		if err := sender.flush(); err != nil {
			return found{}, err
		}
	}
	for side := range done {
		if err := await(side); err != nil {
			return found{}, err
		}
	}
	seconds, events := time.Since(began).Seconds(), bursts*burstEvents
	return found{Events: events, Deliveries: events * given.subscribers, Seconds: seconds}, nil
}
