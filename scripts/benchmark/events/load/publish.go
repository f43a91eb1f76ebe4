package main

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Publish sends requests of one batch each, one under way on each connection, until the count or the time is reached.
func publish(given settings) (found, error) {
	requests := prepared(given)
	var claimed, stored atomic.Int64
	samples := make([][]int64, given.connections)
	failures := make([]error, given.connections)
	var wait sync.WaitGroup
	began := time.Now()
	end := began.Add(time.Duration(given.seconds * float64(time.Second)))
	for index := 0; index < given.connections; index++ {
		wait.Add(1)
		go func(index int) {
			defer wait.Done()
			samples[index], failures[index] = publishSome(given, requests, end, &claimed, &stored)
		}(index)
	}
	wait.Wait()
	result := found{Events: int(stored.Load()), Seconds: time.Since(began).Seconds()}
	for _, some := range samples {
		result.Samples = append(result.Samples, some...)
	}
	return result, errors.Join(failures...)
}

func publishSome(
	given settings, requests [][]byte, end time.Time, claimed, stored *atomic.Int64,
) ([]int64, error) {
	server, err := dial(given.port)
	if err != nil {
		return nil, err
	}
	defer server.close()
	var samples []int64
	for time.Now().Before(end) {
		first := int(claimed.Add(int64(given.batch))) - given.batch
		count := min(given.batch, given.events-first)
		if count <= 0 {
			break
		}
		one := requests[first/given.batch%len(requests)]
		if count < given.batch { // The last one.
			one = request("/events", eventsFrom(given.topics, first, count))
		}
		sent := time.Now()
		if err := server.call(one); err != nil {
			return samples, err
		}
		samples = append(samples, int64(time.Since(sent)))
		stored.Add(int64(count))
	}
	return samples, nil
}

// PublishAll stores numbered events in batches on one connection; it is not measured.
func publishAll(given settings) error {
	server, err := dial(given.port)
	if err != nil {
		return err
	}
	defer server.close()
	for number := 0; number < given.events; number += given.batch {
		count := min(given.batch, given.events-number)
		if err := server.call(request("/events", eventsFrom(given.topics, number, count))); err != nil {
			return err
		}
	}
	return nil
}
