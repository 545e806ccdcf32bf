// Package kafkaengine finds an Apache Kafka broker for tests, or downloads and
// starts one. It is for internal/testenv and for the program engines next to it.
package kafkaengine

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/outmill/outmill/internal/testenv/certificate"
	"github.com/outmill/outmill/internal/testenv/proc"
)

// Version is the Apache Kafka release that Start runs.
const Version = "4.3.1"

// User and Password are for the listener that requires TLS and SASL: PLAIN, SCRAM-SHA-256,
// SCRAM-SHA-512, and OAUTHBEARER with an unsecured token.
const (
	User     = "outmill"
	Password = "outmill-secret"
)

const brokerClass = "kafka.Kafka"

// readyWithin limits the wait for the start of a broker, which takes 5 s on an idle
// machine.
const readyWithin = 2 * time.Minute

// Engine is a broker on loopback, one node, KRaft. Its files are in one directory.
type Engine struct {
	// Addr is the host:port that clients connect to.
	Addr string
	// SecureAddr is the host:port of the listener that requires TLS and SASL. Clients log in
	// as User, and the listener shows Certificate.
	SecureAddr  string
	Certificate certificate.Certificate
	// Dir holds the configuration, the data, the log and the pid.
	Dir string

	libs string
	// attached keeps the pipes of StartAttached reachable. The garbage collector would close
	// them, which ends the broker, so keep the engine as long as the broker is needed.
	attached []io.WriteCloser
}

// Prepare downloads the broker if the machine does not have it yet, chooses
// free ports and formats the storage in dir, which must be empty or not exist.
func Prepare(ctx context.Context, dir string) (*Engine, error) {
	if err := checkJava(ctx); err != nil {
		return nil, err
	}
	libs, err := Libs(ctx)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	shown, err := certificate.New()
	if err != nil {
		return nil, err
	}
	e := &Engine{Addr: loopback(ports[0]), SecureAddr: loopback(ports[1]), Certificate: shown, Dir: dir, libs: libs}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("kafka: make the data directory: %w", err)
	}
	if err := os.WriteFile(e.keystoreFile(), shown.Keystore(), 0o600); err != nil {
		return nil, fmt.Errorf("kafka: write the certificate: %w", err)
	}
	if err := os.WriteFile(e.configFile(), e.properties(loopback(ports[2])), 0o600); err != nil {
		return nil, fmt.Errorf("kafka: write the configuration: %w", err)
	}
	return e, e.format(ctx)
}

// StartAttached starts the broker so that it ends with this process, even after a crash, or
// at Detach, and waits until it is ready. When the broker ends, the engine's directory is
// removed. StartAttached may be called again after the broker has died.
func (e *Engine) StartAttached(ctx context.Context) error {
	// The shell reads from a pipe that only this process holds open, so end of file means that
	// this process has ended. It kills the broker, because the data is not needed any more,
	// and a broker that a test has stopped would not receive a request to shut down.
	const supervise = `"$@" & pid=$!; echo $pid >"$PIDFILE.new"; mv "$PIDFILE.new" "$PIDFILE"; ` +
		`read -r _; kill -9 $pid 2>/dev/null; wait $pid; rm -rf "$DIR"`
	// The broker must outlive ctx, which limits only its start.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh",
		append([]string{"-c", supervise, "sh"}, e.java(quickStart, brokerClass, e.configFile())...)...)
	cmd.Env = append(os.Environ(), "PIDFILE="+e.PidFile(), "DIR="+e.Dir)
	if err := os.Remove(e.PidFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("kafka: remove the old pid: %w", err)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("kafka: start the broker: %w", err)
	}
	if err := e.launch(cmd); err != nil {
		return err
	}
	e.attached = append(e.attached, stdin)
	return e.awaitReady(ctx)
}

// Detach ends a broker of StartAttached. It does not wait for its end.
func (e *Engine) Detach() {
	for _, stdin := range e.attached {
		_ = stdin.Close()
	}
	e.attached = nil
}

// StartDetached starts the broker in the background, so that it outlives this process, and
// waits until it is ready. Its pid is in PidFile.
func (e *Engine) StartDetached(ctx context.Context) error {
	line := e.java(nil, brokerClass, e.configFile())
	cmd := exec.CommandContext(context.WithoutCancel(ctx), line[0], line[1:]...)
	if err := e.launch(cmd); err != nil {
		return err
	}
	if err := os.WriteFile(e.PidFile(), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600); err != nil {
		return errors.Join(fmt.Errorf("kafka: write the pid: %w", err), cmd.Process.Kill())
	}
	return e.awaitReady(ctx)
}

// PidFile returns the file with the pid of the broker.
func (e *Engine) PidFile() string { return filepath.Join(e.Dir, "pid") }

// LogFile returns the file with the broker's output.
func (e *Engine) LogFile() string { return filepath.Join(e.Dir, "log") }

// Process returns the running broker.
func (e *Engine) Process() (*os.Process, error) {
	pid, err := proc.ReadPid(e.PidFile())
	if err != nil {
		return nil, err
	}
	return os.FindProcess(pid)
}

func (e *Engine) launch(cmd *exec.Cmd) error {
	log, err := os.OpenFile(e.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("kafka: open the log: %w", err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = proc.OwnSession()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("kafka: start the broker: %w", err)
	}
	return nil
}

func (e *Engine) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	for {
		err := Check(ctx, []string{e.Addr})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kafka: the broker was not ready in time: %w; the end of its log: %s", err, proc.LastLines(e.LogFile()))
		case <-poll.C:
		}
	}
}

func (e *Engine) configFile() string   { return filepath.Join(e.Dir, "server.properties") }
func (e *Engine) keystoreFile() string { return filepath.Join(e.Dir, "keystore.pem") }

// quickStart makes the Java virtual machine start in half the time. It runs more slowly
// afterwards, so do not measure with it.
var quickStart = []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}

// java returns a command line that runs a class of the broker.
func (e *Engine) java(flags []string, class string, args ...string) []string {
	line := append([]string{"java", "-Xmx512m"}, flags...)
	return append(append(line, "-cp", filepath.Join(e.libs, "*"), class), args...)
}

func (e *Engine) format(ctx context.Context) error {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return fmt.Errorf("kafka: make a cluster id: %w", err)
	}
	// Kafka would treat a leading dash as a flag.
	id[0] &= 0x7f
	line := e.java(quickStart, "kafka.tools.StorageTool",
		"format", "-t", base64.RawURLEncoding.EncodeToString(id), "-c", e.configFile(),
		"--add-scram", "SCRAM-SHA-256=[name="+User+",password="+Password+"]",
		"--add-scram", "SCRAM-SHA-512=[name="+User+",password="+Password+"]")
	out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kafka: format the storage: %w: %s", err, proc.LastLine(out))
	}
	return nil
}

func (e *Engine) properties(controller string) []byte {
	return fmt.Appendf(nil, `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@%[3]s
listeners=PLAINTEXT://%[1]s,SECURE://%[2]s,CONTROLLER://%[3]s
advertised.listeners=PLAINTEXT://%[1]s,SECURE://%[2]s
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL
inter.broker.listener.name=PLAINTEXT
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location=%[4]s
listener.name.secure.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_%[6]s="%[7]s";
listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule \
 required unsecuredLoginStringClaim_sub="broker";
log.dirs=%[5]s
auto.create.topics.enable=false
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
`, e.Addr, e.SecureAddr, controller, filepath.ToSlash(e.keystoreFile()), filepath.ToSlash(filepath.Join(e.Dir, "data")), User, Password)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// freePorts returns different ports that were free a moment ago.
func freePorts(n int) ([]int, error) {
	var ports []int
	for len(ports) < n {
		port, err := proc.FreePort()
		if err != nil {
			return nil, fmt.Errorf("kafka: %w", err)
		}
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func checkJava(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("no usable Java: %w", err)
	}
	found := javaVersion.FindSubmatch(out)
	if found == nil {
		return fmt.Errorf("cannot tell the version of Java from %q", proc.LastLine(out))
	}
	if major, _ := strconv.Atoi(string(found[1])); major < 17 {
		return fmt.Errorf("the Java of this machine has version %s: Kafka requires 17 or later", found[1])
	}
	return nil
}
