package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

const bufferBytes = 64 * 1024

// Client is one connection that stays open. Requests are written and answers read by hand: no library's time is
// measured.
type client struct {
	connection net.Conn
	reader     *bufio.Reader
}

func dial(port int) (*client, error) {
	connection, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(port), silence)
	if err != nil {
		return nil, err
	}
	return &client{connection, bufio.NewReaderSize(connection, bufferBytes)}, nil
}

func (c *client) close() { c.connection.Close() }

// Request is a POST as it is sent.
func request(path string, body []byte) []byte {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		path, len(body))
	return append([]byte(head), body...)
}

// Call sends a request and reads the answer to its end; whatever is not 2xx is an error.
func (c *client) call(sent []byte) error {
	if err := c.connection.SetDeadline(time.Now().Add(silence)); err != nil {
		return err
	}
	if _, err := c.connection.Write(sent); err != nil {
		return err
	}
	first, size, err := readHead(c.reader)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(first, []byte("HTTP/1.1 2")) {
		text := make([]byte, min(size, 1000))
		_, _ = io.ReadFull(c.reader, text)
		return fmt.Errorf("refused: %s: %s", bytes.TrimSpace(first), text)
	}
	_, err = c.reader.Discard(size)
	return err
}

var lengthField = []byte("content-length:")

// ReadHead reads the first line of a request or an answer and its headers, and finds out how long the body is.
func readHead(reader *bufio.Reader) (first []byte, size int, err error) {
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return nil, 0, err
	}
	first = bytes.Clone(line)
	for len(line) > 2 {
		if line, err = reader.ReadSlice('\n'); err != nil {
			return nil, 0, err
		}
		if len(line) > len(lengthField) && bytes.EqualFold(line[:len(lengthField)], lengthField) {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(line[len(lengthField):]))); err != nil {
				return nil, 0, err
			}
		}
	}
	return first, size, nil
}
