// A transactional producer over kafka-go's Client, whose requests share a pool of connections.
//
// Each transaction adds its partitions and produces to them concurrently, so that several
// connections are open, and ends on whichever is free. It stops at the first error.
//
//	pooled BOOTSTRAP TOPIC PARTITIONS GROUP TRANSACTIONAL_ID TRANSACTIONS
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// Offsets in a record batch of magic 2, behind the size that kafka-go writes before it.
const (
	sizeBytes       = 4
	crcAt           = 17
	attributesAt    = 21
	producerIDAt    = 43
	producerEpochAt = 51
	baseSequenceAt  = 53
	isTransactional = 1 << 4
	timeoutMs       = 60_000
	requestTimeout  = 10 * time.Second
	triesMax        = 200
)

type producer struct {
	client    *kafka.Client
	topic     string
	group     string
	id        string
	session   kafka.ProducerSession
	sequences []int32
}

func main() {
	bootstrap, topic, group, id := os.Args[1], os.Args[2], os.Args[4], os.Args[5]
	partitions, transactions := number(os.Args[3]), number(os.Args[6])
	var connections atomic.Int32
	dialer := net.Dialer{}
	transport := &kafka.Transport{
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			connections.Add(1)
			return dialer.DialContext(ctx, network, address)
		},
	}
	p := &producer{
		client:    &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: requestTimeout, Transport: transport},
		topic:     topic,
		group:     group,
		id:        id,
		sequences: make([]int32, partitions),
	}
	check("InitProducerId", p.start())
	for count := 1; count <= transactions; count++ {
		check(fmt.Sprintf("transaction %d", count), p.transact(count))
		fmt.Printf("committed %d\n", count)
	}
	fmt.Printf("connections %d\n", connections.Load())
}

func (p *producer) start() error {
	request := &kafka.InitProducerIDRequest{TransactionalID: p.id, TransactionTimeoutMs: timeoutMs}
	return retried(func() error {
		response, err := p.client.InitProducerID(context.Background(), request)
		if err != nil {
			return err
		}
		p.session = *response.Producer
		return response.Error
	})
}

// transact writes one record to each partition and commits the group's offset.
func (p *producer) transact(count int) error {
	errs := make([]error, len(p.sequences))
	var writers sync.WaitGroup
	for partition := range p.sequences {
		writers.Add(1)
		go func() {
			defer writers.Done()
			errs[partition] = p.write(partition, count)
		}()
	}
	writers.Wait()
	for partition, err := range errs {
		if err != nil {
			return fmt.Errorf("partition %d: %w", partition, err)
		}
	}
	if err := p.sendOffset(int64(count)); err != nil {
		return err
	}
	return retried(func() error {
		response, err := p.client.EndTxn(context.Background(), &kafka.EndTxnRequest{
			TransactionalID: p.id,
			ProducerID:      p.session.ProducerID,
			ProducerEpoch:   p.session.ProducerEpoch,
			Committed:       true,
		})
		if err != nil {
			return err
		}
		return named("EndTxn", response.Error)
	})
}

func (p *producer) write(partition, count int) error {
	err := retried(func() error {
		response, err := p.client.AddPartitionsToTxn(context.Background(), &kafka.AddPartitionsToTxnRequest{
			TransactionalID: p.id,
			ProducerID:      p.session.ProducerID,
			ProducerEpoch:   p.session.ProducerEpoch,
			Topics:          map[string][]kafka.AddPartitionToTxn{p.topic: {{Partition: partition}}},
		})
		if err != nil {
			return err
		}
		return named("AddPartitionsToTxn", response.Topics[p.topic][0].Error)
	})
	if err != nil {
		return err
	}
	batch, err := p.batch(partition, fmt.Sprintf("%d-%d", count, partition))
	if err != nil {
		return err
	}
	err = retried(func() error {
		response, err := p.client.RawProduce(context.Background(), &kafka.RawProduceRequest{
			Topic:           p.topic,
			Partition:       partition,
			RequiredAcks:    kafka.RequireAll,
			TransactionalID: p.id,
			RawRecords:      protocol.RawRecordSet{Reader: bytes.NewReader(batch)},
		})
		if err != nil {
			return err
		}
		return named("Produce", response.Error)
	})
	p.sequences[partition]++
	return err
}

func (p *producer) sendOffset(offset int64) error {
	err := retried(func() error {
		response, err := p.client.AddOffsetsToTxn(context.Background(), &kafka.AddOffsetsToTxnRequest{
			TransactionalID: p.id,
			ProducerID:      p.session.ProducerID,
			ProducerEpoch:   p.session.ProducerEpoch,
			GroupID:         p.group,
		})
		if err != nil {
			return err
		}
		return named("AddOffsetsToTxn", response.Error)
	})
	if err != nil {
		return err
	}
	return retried(func() error {
		response, err := p.client.TxnOffsetCommit(context.Background(), &kafka.TxnOffsetCommitRequest{
			TransactionalID: p.id,
			GroupID:         p.group,
			ProducerID:      p.session.ProducerID,
			ProducerEpoch:   p.session.ProducerEpoch,
			GenerationID:    -1,
			Topics:          map[string][]kafka.TxnOffsetCommit{p.topic: {{Partition: 0, Offset: offset}}},
		})
		if err != nil {
			return err
		}
		return named("TxnOffsetCommit", response.Topics[p.topic][0].Error)
	})
}

// batch has kafka-go encode one record, and makes its batch one of this transaction.
func (p *producer) batch(partition int, value string) ([]byte, error) {
	record := kafka.Record{Time: time.Now(), Value: kafka.NewBytes([]byte(value))}
	records := protocol.RecordSet{Version: 2, Records: kafka.NewRecordReader(record)}
	var encoded bytes.Buffer
	if _, err := records.WriteTo(&encoded); err != nil {
		return nil, err
	}
	batch := encoded.Bytes()[sizeBytes:]
	attributes := binary.BigEndian.Uint16(batch[attributesAt:])
	binary.BigEndian.PutUint16(batch[attributesAt:], attributes|isTransactional)
	binary.BigEndian.PutUint64(batch[producerIDAt:], uint64(p.session.ProducerID))
	binary.BigEndian.PutUint16(batch[producerEpochAt:], uint16(p.session.ProducerEpoch))
	binary.BigEndian.PutUint32(batch[baseSequenceAt:], uint32(p.sequences[partition]))
	crc := crc32.Checksum(batch[attributesAt:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(batch[crcAt:], crc)
	return encoded.Bytes(), nil
}

// retried repeats a request while its broker is being found, asks the coordinator, or ends the
// transaction before.
func retried(request func() error) error {
	var err error
	for try := 0; try < triesMax; try++ {
		if err = request(); err == nil || !isPassing(err) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func isPassing(err error) bool {
	for _, passing := range []kafka.Error{
		kafka.GroupCoordinatorNotAvailable,
		kafka.NotCoordinatorForGroup,
		kafka.GroupLoadInProgress,
		kafka.ConcurrentTransactions,
		kafka.NotLeaderForPartition,
		kafka.NotEnoughReplicas,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

func named(api string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", api, err)
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(text, err)
	return value
}

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}
