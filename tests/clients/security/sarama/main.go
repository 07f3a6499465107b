// sarama logs in as it is told, writes and reads; see ../README.md.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

const wait = 20 * time.Second

type login struct{ Mechanism, Client, Bootstrap, User, Password, Token, Ca, Own string }

type order struct {
	Do, Session, Topic, Value, Group string
	Count                            int
	Login                            login
}

type answer map[string]any

var (
	producers = map[string]sarama.SyncProducer{}
	groups    = map[string]sarama.ConsumerGroup{}
)

// SCRAM is no part of sarama: its documentation says to bring this.
type conversation struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

func (c *conversation) Begin(user, password, authzID string) error {
	made, err := c.hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = made.NewConversation()
	}
	return err
}

func (c *conversation) Step(challenge string) (string, error) { return c.ClientConversation.Step(challenge) }

type bearer string

func (b bearer) Token() (*sarama.AccessToken, error) { return &sarama.AccessToken{Token: string(b)}, nil }

func config(l login) (*sarama.Config, error) {
	c := sarama.NewConfig()
	c.Version = sarama.V4_1_0_0
	c.ClientID = l.Client
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	pem, err := os.ReadFile(l.Ca)
	if err != nil {
		return nil, err
	}
	c.Net.TLS.Enable = true
	c.Net.TLS.Config = &tls.Config{RootCAs: x509.NewCertPool()}
	c.Net.TLS.Config.RootCAs.AppendCertsFromPEM(pem)
	if l.Own != "" {
		own, err := tls.LoadX509KeyPair(l.Own, l.Own)
		if err != nil {
			return nil, err
		}
		c.Net.TLS.Config.Certificates = []tls.Certificate{own}
		return c, nil
	}
	c.Net.SASL.Enable = true
	c.Net.SASL.User, c.Net.SASL.Password = l.User, l.Password
	c.Net.SASL.Mechanism = sarama.SASLMechanism(l.Mechanism)
	c.Net.SASL.TokenProvider = bearer(l.Token)
	hash := scram.HashGeneratorFcn(sha512.New)
	if l.Mechanism == sarama.SASLTypeSCRAMSHA256 {
		hash = sha256.New
	}
	c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hash} }
	return c, nil
}

func write(o order) (answer, error) {
	to := producers[o.Session]
	if to == nil {
		c, err := config(o.Login)
		if err != nil {
			return nil, err
		}
		if to, err = sarama.NewSyncProducer([]string{o.Login.Bootstrap}, c); err != nil {
			return nil, err
		}
		producers[o.Session] = to
	}
	_, _, err := to.SendMessage(&sarama.ProducerMessage{Topic: o.Topic, Value: sarama.StringEncoder(o.Value)})
	return answer{"ok": true}, err
}

type reader struct {
	values []string
	count  int
	enough context.CancelFunc
}

func (r *reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (r *reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for len(r.values) < r.count {
		select {
		case message := <-claim.Messages():
			if message == nil {
				return nil
			}
			r.values = append(r.values, string(message.Value))
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
	session.Commit()
	r.enough()
	return nil
}

func read(o order) (answer, error) {
	of := groups[o.Session]
	if of == nil {
		c, err := config(o.Login)
		if err != nil {
			return nil, err
		}
		if of, err = sarama.NewConsumerGroup([]string{o.Login.Bootstrap}, o.Group, c); err != nil {
			return nil, err
		}
		groups[o.Session] = of
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	r := &reader{count: o.Count, enough: cancel, values: []string{}}
	failed := make(chan error, 1)
	go func() {
		select {
		case err := <-of.Errors():
			failed <- err
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := of.Consume(ctx, []string{o.Topic}, r); err != nil && len(r.values) < o.Count {
		return nil, err
	}
	select {
	case err := <-failed:
		if len(r.values) < o.Count {
			return nil, err
		}
	default:
	}
	return answer{"values": r.values}, nil
}

func closed(o order) (answer, error) {
	if to := producers[o.Session]; to != nil {
		to.Close()
		delete(producers, o.Session)
	}
	if of := groups[o.Session]; of != nil {
		of.Close()
		delete(groups, o.Session)
	}
	return answer{"ok": true}, nil
}

func say(a answer) {
	line, _ := json.Marshal(a)
	fmt.Println(string(line))
}

func main() {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == "github.com/IBM/sarama" {
			say(answer{"version": dependency.Version})
		}
	}
	verbs := map[string]func(order) (answer, error){"write": write, "read": read, "close": closed}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			panic(err)
		}
		a, err := verbs[o.Do](o)
		if err != nil {
			a = answer{"error": fmt.Sprintf("%T", err), "message": err.Error()}
		}
		say(a)
	}
}
