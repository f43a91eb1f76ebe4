package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	streamName     = "ROOMS"
	subjectFront   = "room."
	deliverFront   = "deliver."
	heartbeatEvery = 5 * time.Second
)

// Nats: a room is a subject of one stream that is kept in files. Published is by the stock client. Subscribed is on a
// bare connection that reads what a push consumer delivers, as light as the reader of WebSockets: a hundred stock
// clients in one process would measure themselves.
type nats struct {
	address string
	isPlain bool
	admin   *client.Conn
	stream  jetstream.JetStream
	// Names of those that were made here.
	consumers *sync.Map
}

func newNats(address string, isPlain bool) (target, error) {
	admin, err := client.Connect("nats://" + address)
	if err != nil {
		return nil, err
	}
	stream, err := jetstream.New(admin)
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	config := jetstream.StreamConfig{Name: streamName, Subjects: []string{subjectFront + ">"}}
	config.Storage = jetstream.FileStorage
	if _, err := stream.CreateOrUpdateStream(limit, config); err != nil {
		return nil, err
	}
	return nats{address, isPlain, admin, stream, new(sync.Map)}, nil
}

func (n nats) ways() map[string]way {
	return map[string]way{"stream-pipelined": pipelined(n), "stream-one-by-one": n.oneByOne}
}

// Subscribe makes an ordered push consumer: as the stock client's, it needs no acknowledgements, lives in memory,
// begins with what is new, and its flow is controlled.
func (n nats) subscribe(all *readers, room string, take func([]byte), lost func(error)) error {
	subject := subjectFront + room
	if !n.isPlain {
		subject = deliverFront + n.admin.NewInbox()[len(client.InboxPrefix):]
	}
	connection, err := n.open(subject)
	if err != nil {
		return err
	}
	if !n.isPlain {
		api, err := n.admin.JetStream()
		if err != nil {
			return err
		}
		made, err := api.AddConsumer(streamName, &client.ConsumerConfig{
			DeliverSubject: subject,
			FilterSubject:  subjectFront + room,
			DeliverPolicy:  client.DeliverNewPolicy,
			AckPolicy:      client.AckNonePolicy,
			MaxDeliver:     1,
			FlowControl:    true,
			Heartbeat:      heartbeatEvery,
			MemoryStorage:  true,
			Replicas:       1,
		}, client.MaxWait(silence))
		if err != nil {
			return err
		}
		n.consumers.Store(made.Name, nil)
	}
	return all.add(connection, nil, natsParser{take}, lost)
}

// Open connects and subscribes; a PONG says that it is so.
func (n nats) open(subject string) (net.Conn, error) {
	connection, err := net.DialTimeout("tcp", n.address, silence)
	if err != nil {
		return nil, err
	}
	if err := connection.SetDeadline(time.Now().Add(silence)); err != nil {
		return nil, err
	}
	hello := `CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}` + "\r\n"
	if _, err := fmt.Fprintf(connection, "%sSUB %s 1\r\nPING\r\n", hello, subject); err != nil {
		return nil, err
	}
	for reader := bufio.NewReader(connection); ; {
		line, err := reader.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(line, "-ERR") {
			return nil, errors.New(line)
		}
		if strings.HasPrefix(line, "PONG") {
			return connection, nil
		}
	}
}

func (n nats) close() {
	if api, err := n.admin.JetStream(); err == nil {
		n.consumers.Range(func(name, _ any) bool {
			return api.DeleteConsumer(streamName, name.(string), client.MaxWait(silence)) == nil
		})
	}
	n.admin.Close()
}

// NatsParser reads the protocol of NATS. `take` gets messages; pings and requests for flow control are answered.
type natsParser struct{ take func(message []byte) }

var (
	lineEnd     = []byte("\r\n")
	messageVerb = []byte("MSG ")
	headersVerb = []byte("HMSG ")
	pingVerb    = []byte("PING")
	errorVerb   = []byte("-ERR")
	flowControl = []byte("NATS/1.0 100 FlowControl")
)

func (p natsParser) parse(data []byte) (used int, answer []byte, err error) {
	for {
		left := data[used:]
		end := bytes.Index(left, lineEnd)
		if end < 0 {
			return used, answer, nil
		}
		line, size := left[:end], 0
		isPlain, hasHeaders := bytes.HasPrefix(line, messageVerb), bytes.HasPrefix(line, headersVerb)
		if isPlain || hasHeaders { // MSG subject sid [reply] size, or HMSG subject sid [reply] header-size size.
			for _, digit := range line[bytes.LastIndexByte(line, ' ')+1:] {
				size = size*10 + int(digit-'0')
			}
			size += len(lineEnd)
		}
		behind := end + len(lineEnd) + size
		if behind > len(left) {
			return used, answer, nil
		}
		used += behind
		switch content := left[end+len(lineEnd) : behind]; {
		case isPlain:
			p.take(content)
		case hasHeaders:
			// A heartbeat has no reply; the server waits for that of a flow control request.
			if fields := bytes.Fields(line); len(fields) == 6 && bytes.HasPrefix(content, flowControl) {
				answer = fmt.Appendf(answer, "PUB %s 0\r\n\r\n", fields[3])
			}
		case bytes.HasPrefix(line, pingVerb):
			answer = append(answer, "PONG\r\n"...)
		case bytes.HasPrefix(line, errorVerb):
			return used, answer, errors.New(string(line))
		}
	}
}

// NatsPublisher publishes to the stream without waiting; answers come in their own time.
type natsPublisher struct {
	connection *client.Conn
	room       string
	inbox      string
}

func (n nats) publisher(room string, answered func(error)) (publisher, error) {
	connection, err := client.Connect("nats://" + n.address)
	if err != nil {
		return nil, err
	}
	inbox := connection.NewInbox()
	_, err = connection.Subscribe(inbox, func(answer *client.Msg) {
		if !bytes.Contains(answer.Data, []byte(`"seq":`)) {
			answered(fmt.Errorf("refused: %s %v", answer.Data, answer.Header))
			return
		}
		answered(nil)
	})
	if err != nil {
		return nil, err
	}
	return &natsPublisher{connection, subjectFront + room, inbox}, connection.Flush()
}

func (p *natsPublisher) send(data []byte) error {
	return p.connection.PublishRequest(p.room, p.inbox, data)
}

// Flush has nothing to do: the client's own goroutine writes what is there.
func (p *natsPublisher) flush() error { return nil }

func (p *natsPublisher) close() { p.connection.Close() }

// OneByOne uses the stock call that publishes and waits.
func (n nats) oneByOne(given settings, data payload, end time.Time, stored *atomic.Int64) ([]int64, error) {
	connection, err := client.Connect("nats://" + n.address)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	stream, err := jetstream.New(connection)
	if err != nil {
		return nil, err
	}
	var samples []int64
	for number := 0; time.Now().Before(end); number++ {
		event := data.of(number)
		sent := time.Now()
		limit, cancel := context.WithTimeout(context.Background(), silence)
		_, err := stream.Publish(limit, subjectFront+given.room, event)
		cancel()
		if err != nil {
			return nil, err
		}
		samples = append(samples, int64(time.Since(sent)))
		stored.Add(1)
	}
	return samples, nil
}

// MakeRooms publishes one event to each of so many subjects of the one stream.
func (n nats) makeRooms(given settings) (int, error) {
	data := newPayload(given.valueBytes)
	for number := range given.count {
		subject := subjectFront + roomName(given.room, number)
		if _, err := n.stream.PublishAsync(subject, data.of(number)); err != nil {
			return number, err
		}
	}
	select {
	case <-n.stream.PublishAsyncComplete():
		return given.count, nil
	case <-time.After(silence):
		return 0, errSilence
	}
}

// MakeStreams makes a stream of its own for each room, with one event.
func (n nats) makeStreams(given settings) (int, error) {
	data := newPayload(given.valueBytes)
	for number := range given.count {
		name := roomName(given.room, number)
		limit, cancel := context.WithTimeout(context.Background(), silence)
		config := jetstream.StreamConfig{Name: "S" + strconv.Itoa(number), Subjects: []string{"own." + name}}
		config.Storage = jetstream.FileStorage
		_, err := n.stream.CreateStream(limit, config)
		if err == nil {
			_, err = n.stream.Publish(limit, "own."+name, data.of(number))
		}
		cancel()
		if err != nil {
			return number, err
		}
	}
	return given.count, nil
}
