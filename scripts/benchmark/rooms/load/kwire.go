package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/gobwas/ws"
)

const bufferBytes = 16 * 1024

// Kwire is spoken to over WebSocket and, by kwire_http.go, over HTTP.
type kwire struct{ address string }

func (k kwire) close() {}

func (k kwire) ways() map[string]way {
	return map[string]way{
		"socket-pipelined":  pipelined(k),
		"socket-one-by-one": oneByOne(k),
		"post":              k.post,
		"post-batch":        k.postBatch,
		"post-lines":        k.postLines,
	}
}

type socket struct {
	connection net.Conn
	reader     *bufio.Reader
	writer     *bufio.Writer
	message    []byte
	isClosing  atomic.Bool
}

func (k kwire) open(path string) (*socket, error) {
	limit, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	connection, reader, _, err := ws.Dial(limit, "ws://"+k.address+path)
	if err != nil {
		return nil, err
	}
	if reader == nil {
		reader = bufio.NewReaderSize(connection, bufferBytes)
	}
	return &socket{connection: connection, reader: reader, writer: bufio.NewWriterSize(connection, bufferBytes)}, nil
}

// Next is the next text; it is valid until the one after it is asked for. Pings are answered.
func (s *socket) next() ([]byte, error) {
	for {
		header, err := ws.ReadHeader(s.reader)
		if err != nil {
			return nil, err
		}
		if int(header.Length) > cap(s.message) {
			s.message = make([]byte, header.Length)
		}
		s.message = s.message[:header.Length]
		if _, err := io.ReadFull(s.reader, s.message); err != nil {
			return nil, err
		}
		switch header.OpCode {
		case ws.OpText:
			return s.message, nil
		case ws.OpPing:
			if err := ws.WriteFrame(s.connection, ws.MaskFrame(ws.NewPongFrame(s.message))); err != nil {
				return nil, err
			}
		case ws.OpClose:
			return nil, fmt.Errorf("the server closed the WebSocket: %q", s.message)
		}
	}
}

func (s *socket) close() {
	s.isClosing.Store(true)
	s.connection.Close()
}

// FrameParser reads a server's frames. `take` gets texts, and pings are answered.
type frameParser struct{ take func(text []byte) }

func (p frameParser) parse(data []byte) (used int, answer []byte, err error) {
	for {
		left := data[used:]
		if len(left) < 2 {
			return used, answer, nil
		}
		at, size := 2, int(left[1])
		switch size {
		case 126:
			if at = 4; len(left) >= at {
				size = int(binary.BigEndian.Uint16(left[2:]))
			}
		case 127:
			if at = 10; len(left) >= at {
				size = int(binary.BigEndian.Uint64(left[2:]))
			}
		}
		if len(left) < at+size {
			return used, answer, nil
		}
		content := left[at : at+size]
		used += at + size
		switch ws.OpCode(left[0] & 0x0f) {
		case ws.OpText:
			p.take(content)
		case ws.OpPing:
			answer = append(answer, ws.MustCompileFrame(ws.MaskFrame(ws.NewPongFrame(content)))...)
		case ws.OpClose:
			return used, answer, fmt.Errorf("the server closed the WebSocket: %q", content)
		}
	}
}

func (k kwire) subscribe(all *readers, room string, take func([]byte), lost func(error)) error {
	opened, err := k.open("/rooms/" + room + "/subscribe")
	if err != nil {
		return err
	}
	for { // The answer, which says where it begins, and then that it has caught up.
		text, err := opened.next()
		if err != nil {
			return err
		}
		if bytes.HasPrefix(text, []byte(`{"control":"caught_up"`)) {
			break
		}
	}
	before, err := opened.reader.Peek(opened.reader.Buffered())
	if err != nil {
		return err
	}
	parse := frameParser{func(text []byte) {
		if bytes.HasPrefix(text, []byte(`{"room":`)) {
			take(text)
		}
	}}
	return all.add(opened.connection, before, parse, lost)
}

type socketPublisher struct {
	*socket
	front []byte
	frame []byte
}

func (k kwire) publisher(room string, answered func(error)) (publisher, error) {
	opened, err := k.open("/ws")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			answer, err := opened.next()
			if err != nil {
				if !opened.isClosing.Load() {
					answered(err)
				}
				return
			}
			if !bytes.HasPrefix(answer, []byte(`{"result":`)) {
				answered(fmt.Errorf("refused: %s", answer))
				continue
			}
			answered(nil)
		}
	}()
	return &socketPublisher{socket: opened, front: commandFront(room)}, nil
}

func commandFront(room string) []byte {
	name, _ := json.Marshal(room)
	return fmt.Appendf(nil, `{"command":"stream.publish","payload":{"room":%s,"event_type":"bench","data":`, name)
}

// One mask for all frames: drawing one for each is the client's own time. The server has to undo it all the same.
var mask = [4]byte{7, 31, 127, 251}

func (p *socketPublisher) send(data []byte) error {
	p.frame = append(append(append(p.frame[:0], p.front...), data...), "}}"...)
	header := ws.Header{Fin: true, OpCode: ws.OpText, Masked: true, Mask: mask, Length: int64(len(p.frame))}
	ws.Cipher(p.frame, mask, 0)
	if err := ws.WriteHeader(p.writer, header); err != nil {
		return err
	}
	_, err := p.writer.Write(p.frame)
	return err
}

func (p *socketPublisher) flush() error { return p.writer.Flush() }

// MakeRooms publishes one event to each of so many new rooms, on several connections.
func (k kwire) makeRooms(given settings) (int, error) {
	var next, made atomic.Int64
	failures := make([]error, given.connections)
	var wait sync.WaitGroup
	for index := range given.connections {
		wait.Add(1)
		go func() {
			defer wait.Done()
			failures[index] = k.makeSome(given, &next, &made)
		}()
	}
	wait.Wait()
	return int(made.Load()), errors.Join(failures...)
}

func (k kwire) makeSome(given settings, next, made *atomic.Int64) error {
	opened, err := k.open("/ws")
	if err != nil {
		return err
	}
	defer opened.close()
	data := newPayload(given.valueBytes)
	for {
		number := int(next.Add(1) - 1)
		if number >= given.count {
			return nil
		}
		sender := socketPublisher{socket: opened, front: commandFront(roomName(given.room, number))}
		if err := errors.Join(sender.send(data.of(number)), sender.flush()); err != nil {
			return err
		}
		answer, err := opened.next()
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(answer, []byte(`{"result":`)) {
			return fmt.Errorf("refused: %s", answer)
		}
		made.Add(1)
	}
}

func roomName(prefix string, number int) string { return fmt.Sprintf("%s-%06d", prefix, number) }
