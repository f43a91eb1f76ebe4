package main

import (
	"bytes"
	"fmt"
)

const (
	eventType    = "order.placed"
	numberDigits = 9
	// Requests that are made before the clock starts, and then sent again and again: making them is not what is measured.
	preparedMax      = 64
	preparedBytesMax = 8 * 1024 * 1024
)

var numberKey = []byte(`"orderId":"o-`)

// Payload is an order of about 200 bytes, with the event's number in it.
func payload(number int) []byte {
	return fmt.Appendf(nil, `{"orderId":"o-%0*d","customer":"c-%05d","total":%d.5,"currency":"EUR",`+
		`"items":[{"sku":"sku-1001","count":%d},{"sku":"sku-1002","count":1}],"note":"leave it with the neighbours"}`,
		numberDigits, number, number%100_000, number%1000, number%9+1)
}

func event(topic string, number int) []byte {
	return fmt.Appendf(nil, `{"topic":"%s","type":"%s","payload":%s}`, topic, eventType, payload(number))
}

// EventsFrom is the body of a request with events that are numbered from `number` on, for the topics in turn.
func eventsFrom(topics []string, number, count int) []byte {
	if count == 1 {
		return event(topics[number%len(topics)], number)
	}
	body := []byte("[")
	for index := 0; index < count; index++ {
		if index > 0 {
			body = append(body, ',')
		}
		body = append(body, event(topics[(number+index)%len(topics)], number+index)...)
	}
	return append(body, ']')
}

// Prepared are requests of one batch each.
func prepared(given settings) [][]byte {
	requests, size := [][]byte{}, 0
	for len(requests) < preparedMax && (size < preparedBytesMax || len(requests) == 0) {
		one := request("/events", eventsFrom(given.topics, len(requests)*given.batch, given.batch))
		requests, size = append(requests, one), size+len(one)
	}
	return requests
}

// NumberIn finds the number of an event in whatever the server makes of it; -1 if it is none of ours.
func numberIn(text []byte) int {
	at := bytes.Index(text, numberKey)
	if at < 0 || len(text) < at+len(numberKey)+numberDigits {
		return -1
	}
	number := 0
	for _, digit := range text[at+len(numberKey) : at+len(numberKey)+numberDigits] {
		number = number*10 + int(digit-'0')
	}
	return number
}
