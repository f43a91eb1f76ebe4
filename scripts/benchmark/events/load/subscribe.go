package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const lineBytesMax = 1024 * 1024

var (
	eventFront    = []byte(`{"position":`)
	caughtUpFront = []byte(`{"control":"caught_up"`)
)

// Subscribe reads lines of /subscribe/all. `take` gets each event, `caughtUp` is closed at the mark; it ends when the
// answer does, or when `take` says that it is enough.
func subscribe(port int, from string, caughtUp chan<- struct{}, take func(line []byte) bool) error {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/subscribe/all?from=%s&on_lag=catchup", port, from))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("refused: %s", answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(make([]byte, bufferBytes), lineBytesMax)
	for lines.Scan() {
		line := lines.Bytes()
		if bytes.HasPrefix(line, eventFront) {
			if !take(line) {
				return nil
			}
		} else if caughtUp != nil && bytes.HasPrefix(line, caughtUpFront) {
			close(caughtUp)
			caughtUp = nil
		}
	}
	return errors.Join(errors.New("the stream has ended"), lines.Err())
}

// SubscribeStored reads everything that is there, from the oldest event on.
func subscribeStored(given settings) (found, error) {
	if err := publishAll(given); err != nil {
		return found{}, err
	}
	before, began, next := ownCPU(), time.Now(), 0
	var wrong error
	err := subscribe(given.port, "oldest", nil, func(line []byte) bool {
		if number := numberIn(line); number != next {
			wrong = fmt.Errorf("event %d came, not %d", number, next)
			return false
		}
		next++
		return next < given.events
	})
	if err = errors.Join(err, wrong); err != nil {
		return found{}, err
	}
	return found{Deliveries: next, Seconds: time.Since(began).Seconds(), OwnCPUSeconds: ownCPU() - before}, nil
}

// SubscribeLive publishes as fast as it goes while subscribers stand at the head, and waits until all have all.
func subscribeLive(given settings) (found, error) {
	var deliveries atomic.Int64
	var published atomic.Int64
	published.Store(-1) // Not known yet.
	failures := make(chan error, given.subscribers)
	var ended sync.WaitGroup
	for index := 0; index < given.subscribers; index++ {
		caughtUp := make(chan struct{})
		ended.Add(1)
		go func() {
			defer ended.Done()
			own := int64(0)
			err := subscribe(given.port, "new", caughtUp, func([]byte) bool {
				own++
				deliveries.Add(1)
				return own != published.Load()
			})
			if err != nil {
				failures <- err
			}
		}()
		select {
		case <-caughtUp:
		case err := <-failures:
			return found{}, err
		case <-time.After(silence):
			return found{}, errors.New("a subscriber was not told that it has caught up")
		}
	}
	// The last event ends the subscribers: it is sent when it is known how many there were.
	last := given
	last.events, last.batch, last.connections = 1, 1, 1
	began := time.Now()
	result, err := publish(given)
	if err != nil {
		return found{}, err
	}
	published.Store(int64(result.Events + 1))
	if err := publishAll(last); err != nil {
		return found{}, err
	}
	all := make(chan struct{})
	go func() { ended.Wait(); close(all) }()
	select {
	case <-all:
	case err := <-failures:
		return found{}, err
	case <-time.After(silence):
		return found{}, fmt.Errorf("%d of %d deliveries came", deliveries.Load(), given.subscribers*(result.Events+1))
	}
	result.Events++
	result.Deliveries = int(deliveries.Load())
	result.Seconds = time.Since(began).Seconds()
	result.Samples = nil
	return result, nil
}
