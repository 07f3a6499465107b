// franz-go logs in as it is told, writes and reads; see ../README.md.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	wait     = 20 * time.Second
	patience = 5 * time.Second // with what fails
)

type login struct{ Mechanism, Client, Bootstrap, User, Password, Token, Ca, Own string }

type order struct {
	Do, Session, Topic, Value, Group string
	Count                            int
	Login                            login
}

type answer map[string]any

var sessions = map[string]*kgo.Client{}

func encryption(l login) *tls.Config {
	pem, _ := os.ReadFile(l.Ca)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots}
	if l.Own != "" {
		own, err := tls.LoadX509KeyPair(l.Own, l.Own)
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func mechanism(l login) sasl.Mechanism {
	switch l.Mechanism {
	case "PLAIN":
		return plain.Auth{User: l.User, Pass: l.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: l.User, Pass: l.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: l.User, Pass: l.Password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: l.Token}.AsMechanism()
}

func client(o order, options ...kgo.Opt) (*kgo.Client, error) {
	if made := sessions[o.Session]; made != nil {
		return made, nil
	}
	l := o.Login
	options = append(options, kgo.SeedBrokers(l.Bootstrap), kgo.ClientID(l.Client), kgo.DialTLSConfig(encryption(l)))
	options = append(options, kgo.RecordDeliveryTimeout(patience), kgo.RetryTimeout(patience))
	if l.Mechanism != "mTLS" {
		options = append(options, kgo.SASL(mechanism(l)))
	}
	made, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	// A producer tries again for as long as a record may take, whatever the broker answers.
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := made.Ping(ctx); err != nil {
		made.Close()
		return nil, err
	}
	sessions[o.Session] = made
	return made, nil
}

func write(o order) (answer, error) {
	to, err := client(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	err = to.ProduceSync(ctx, &kgo.Record{Topic: o.Topic, Value: []byte(o.Value)}).FirstErr()
	return answer{"ok": true}, err
}

func read(o order) (answer, error) {
	start := kgo.NewOffset().AtStart()
	of, err := client(o, kgo.ConsumerGroup(o.Group), kgo.ConsumeTopics(o.Topic), kgo.ConsumeResetOffset(start), kgo.DisableAutoCommit())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	values := []string{}
	for len(values) < o.Count && ctx.Err() == nil {
		fetches := of.PollFetches(ctx)
		for _, failed := range fetches.Errors() {
			if ctx.Err() == nil {
				return nil, failed.Err
			}
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return answer{"values": values}, of.CommitUncommittedOffsets(ctx)
}

func closed(o order) (answer, error) {
	if made := sessions[o.Session]; made != nil {
		made.Close()
		delete(sessions, o.Session)
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
		if dependency.Path == "github.com/twmb/franz-go" {
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
