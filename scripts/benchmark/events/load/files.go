package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	groupEvents = 1000
	lookEvery   = time.Millisecond
)

// WatchFiles publishes batches at a steady rate and looks for the file of each event: how far behind are the files?
func watchFiles(given settings) (found, error) {
	topic := given.topics[0]
	answered := make(chan time.Time, countMax/given.batch+1)
	published := make(chan error, 1)
	began := time.Now()
	go func() { published <- publishSteadily(given, began, answered) }()
	var result found
	deadline := began.Add(time.Duration(given.seconds*float64(time.Second)) + silence)
	for at := range answered {
		for index := 0; index < given.batch; index++ {
			result.Events++
			for !hasFile(given.directory, topic, result.Events) {
				if time.Now().After(deadline) {
					return found{}, fmt.Errorf("the file of event %d did not come", result.Events)
				}
				time.Sleep(lookEvery)
			}
		}
		result.Samples = append(result.Samples, int64(time.Since(at)))
	}
	result.Seconds = time.Since(began).Seconds()
	return result, <-published
}

func publishSteadily(given settings, began time.Time, answered chan<- time.Time) error {
	defer close(answered)
	server, err := dial(given.port)
	if err != nil {
		return err
	}
	defer server.close()
	pause := time.Second * time.Duration(given.batch) / time.Duration(given.rate)
	end := began.Add(time.Duration(given.seconds * float64(time.Second)))
	for number := 0; time.Now().Before(end) && number+given.batch <= given.events; number += given.batch {
		time.Sleep(time.Until(began.Add(pause * time.Duration(number/given.batch))))
		if err := server.call(request("/events", eventsFrom(given.topics, number, given.batch))); err != nil {
			return err
		}
		answered <- time.Now()
	}
	return nil
}

// HasFile looks in the folders of today and of the day before, by which it is called in UTC.
func hasFile(directory, topic string, sequence int) bool {
	for _, day := range []time.Time{time.Now(), time.Now().Add(-24 * time.Hour)} {
		group := fmt.Sprintf("%04d", (sequence-1)/groupEvents)
		name := fmt.Sprintf("%s-%d.json", topic, sequence)
		_, err := os.Stat(filepath.Join(directory, "data", topic, day.UTC().Format("2006-01-02"), group, name))
		if err == nil {
			return true
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return false
}
