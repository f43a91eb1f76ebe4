package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const lineBytesMax = 1024 * 1024

// Post sends one event with each request, on a connection that stays open.
func (k kwire) post(given settings, data payload, end time.Time, stored *atomic.Int64) ([]int64, error) {
	return k.requests(given, end, stored, 1, func(number int) []byte { return eventJSON(data.of(number)) })
}

// PostBatch sends an array of events with each request.
func (k kwire) postBatch(given settings, data payload, end time.Time, stored *atomic.Int64) ([]int64, error) {
	return k.requests(given, end, stored, given.window, func(number int) []byte {
		body := []byte("[")
		for index := range given.window {
			if index > 0 {
				body = append(body, ',')
			}
			body = append(body, eventJSON(data.of(number*given.window+index))...)
		}
		return append(body, ']')
	})
}

func eventJSON(data []byte) []byte {
	return append(append([]byte(`{"event_type":"bench","data":`), data...), '}')
}

func (k kwire) requests(
	given settings, end time.Time, stored *atomic.Int64, events int, body func(number int) []byte,
) ([]int64, error) {
	connection, err := net.DialTimeout("tcp", k.address, silence)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	reader := bufio.NewReaderSize(connection, bufferBytes)
	var samples []int64
	for number := 0; time.Now().Before(end); number++ {
		content := body(number)
		request := k.head(given.room, "application/json", fmt.Sprintf("Content-Length: %d", len(content)))
		request = append(request, content...)
		sent := time.Now()
		if err := connection.SetDeadline(sent.Add(silence)); err != nil {
			return nil, err
		}
		if _, err := connection.Write(request); err != nil {
			return nil, err
		}
		if err := readStored(reader); err != nil {
			return nil, err
		}
		samples = append(samples, int64(time.Since(sent)))
		stored.Add(int64(events))
	}
	return samples, nil
}

func (k kwire) head(room, contentType, length string) []byte {
	return fmt.Appendf(nil, "POST /rooms/%s/events HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\n%s\r\n\r\n",
		room, k.address, contentType, length)
}

var (
	storedStatus = []byte("HTTP/1.1 201 ")
	lengthField  = []byte("content-length:")
)

// ReadStored reads an answer that says 201, line by line: no library's time is measured.
func readStored(reader *bufio.Reader) error {
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return err
	}
	isStored, status, size := bytes.HasPrefix(line, storedStatus), string(line), 0
	for len(bytes.TrimSpace(line)) > 0 {
		if line, err = reader.ReadSlice('\n'); err != nil {
			return err
		}
		if len(line) > len(lengthField) && bytes.EqualFold(line[:len(lengthField)], lengthField) {
			for _, digit := range bytes.TrimSpace(line[len(lengthField):]) {
				size = size*10 + int(digit-'0')
			}
		}
	}
	if !isStored {
		text := make([]byte, size)
		_, _ = io.ReadFull(reader, text)
		return fmt.Errorf("not stored: %s%s", status, text)
	}
	_, err = reader.Discard(size)
	return err
}

// PostLines sends one long request with an event a line, and reads a line of answer for each meanwhile.
func (k kwire) postLines(given settings, data payload, end time.Time, stored *atomic.Int64) ([]int64, error) {
	connection, err := net.DialTimeout("tcp", k.address, silence)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := connection.SetDeadline(end.Add(silence)); err != nil {
		return nil, err
	}
	if _, err := connection.Write(k.head(given.room, "application/x-ndjson", "Transfer-Encoding: chunked")); err != nil {
		return nil, err
	}
	answers := make(chan error, given.window)
	go readLines(connection, answers)
	underWay, number := 0, 0
	var lines []byte
	for time.Now().Before(end) || underWay > 0 {
		lines = lines[:0]
		for underWay < given.window && time.Now().Before(end) {
			lines = append(append(lines, eventJSON(data.of(number))...), '\n')
			number, underWay = number+1, underWay+1
		}
		if len(lines) > 0 {
			if _, err := fmt.Fprintf(connection, "%x\r\n%s\r\n", len(lines), lines); err != nil {
				return nil, err
			}
		}
		if err := <-answers; err != nil {
			return nil, err
		}
		stored.Add(1)
		underWay--
		for taken := true; taken; {
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

func readLines(connection net.Conn, answers chan<- error) {
	answer, err := http.ReadResponse(bufio.NewReaderSize(connection, bufferBytes), nil)
	if err != nil {
		answers <- err
		return
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(make([]byte, bufferBytes), lineBytesMax)
	for lines.Scan() {
		if !bytes.HasPrefix(lines.Bytes(), []byte(`{"offset":`)) {
			answers <- fmt.Errorf("refused: %s", lines.Bytes())
			return
		}
		answers <- nil
	}
	answers <- errors.Join(errors.New("the answer has ended"), lines.Err())
}
