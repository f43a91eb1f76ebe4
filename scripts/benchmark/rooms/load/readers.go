package main

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	readBytes = 256 * 1024
	eventsMax = 1024 // Connections that one look at epoll may find ready.
)

// Parser turns what came on a connection into messages. It returns how many bytes it has used up, and what has to be
// sent back at once.
type parser interface {
	parse(data []byte) (used int, answer []byte, err error)
}

// Readers reads the connections of all subscribers in one loop on one thread, because a goroutine for each would cost
// more than the server does, and the two share the machine.
type readers struct {
	epoll     int
	mutex     sync.Mutex
	members   map[int32]*member
	buffer    []byte
	isClosing atomic.Bool
	ended     chan struct{}
}

type member struct {
	descriptor int
	parser     parser
	rest       []byte
	lost       func(error)
}

func newReaders() (*readers, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	all := &readers{epoll: epoll, members: map[int32]*member{}, buffer: make([]byte, readBytes)}
	all.ended = make(chan struct{})
	go all.run()
	return all, nil
}

// Add takes a connection over; `before` has been read from it already.
func (r *readers) add(connection net.Conn, before []byte, parse parser, lost func(error)) error {
	file, err := connection.(*net.TCPConn).File()
	if err != nil {
		return err
	}
	descriptor, err := unix.Dup(int(file.Fd()))
	if err != nil {
		return err
	}
	file.Close()
	connection.Close()
	if err := unix.SetNonblock(descriptor, true); err != nil {
		return err
	}
	one := &member{descriptor: descriptor, parser: parse, lost: lost}
	if err := one.take(before); err != nil {
		return err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.members[int32(descriptor)] = one
	interest := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(descriptor)}
	return unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, descriptor, &interest)
}

func (r *readers) run() {
	defer close(r.ended)
	ready := make([]unix.EpollEvent, eventsMax)
	for !r.isClosing.Load() {
		count, err := unix.EpollWait(r.epoll, ready, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			panic(err)
		}
		for _, event := range ready[:max(count, 0)] {
			r.mutex.Lock()
			one := r.members[event.Fd]
			r.mutex.Unlock()
			if err := r.read(one); err != nil {
				_ = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_DEL, one.descriptor, nil)
				one.lost(err)
			}
		}
	}
}

func (r *readers) read(one *member) error {
	kept := copy(r.buffer, one.rest)
	size, err := unix.Read(one.descriptor, r.buffer[kept:])
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return nil
	}
	if err != nil {
		return err
	}
	if size == 0 {
		return errors.New("the server closed a subscriber's connection")
	}
	return one.take(r.buffer[:kept+size])
}

func (m *member) take(data []byte) error {
	used, answer, err := m.parser.parse(data)
	if err != nil {
		return err
	}
	m.rest = append(m.rest[:0], data[used:]...)
	if len(m.rest) > readBytes/2 {
		return fmt.Errorf("a message of more than %d bytes", readBytes/2)
	}
	if len(answer) > 0 {
		_, err = unix.Write(m.descriptor, answer)
	}
	return err
}

func (r *readers) close() {
	r.isClosing.Store(true)
	<-r.ended
	for _, one := range r.members {
		unix.Close(one.descriptor)
	}
	unix.Close(r.epoll)
}
