package kafkaengine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/outmill/outmill/internal/testenv/proc"
)

const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>outmill</groupId>
  <artifactId>testenv</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + Version + `</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`

// Libs returns the directory with the broker's jars in the user's cache. The
// first call on a machine downloads them with Maven; calls in other processes
// wait for it.
func Libs(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("kafka: no directory to keep the download in: %w", err)
	}
	dir := filepath.Join(cache, "outmill-test", "kafka-"+Version)
	libs := filepath.Join(dir, "libs")
	if _, err := os.Stat(libs); err == nil {
		return libs, nil
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return "", fmt.Errorf("no Maven to download Kafka with: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("kafka: make the download directory: %w", err)
	}
	unlock, err := proc.LockFile(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("kafka: lock the download directory: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(libs); err == nil {
		return libs, nil
	}
	return libs, download(ctx, mvn, dir, libs)
}

// download renames at the end, so that libs is either complete or does not exist.
func download(ctx context.Context, mvn, dir, libs string) error {
	work, err := os.MkdirTemp(dir, "download-")
	if err != nil {
		return fmt.Errorf("kafka: make the download directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), []byte(pom), 0o600); err != nil {
		return fmt.Errorf("kafka: write the list of jars: %w", err)
	}
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory="+filepath.Join(work, "libs"))
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("download Kafka %s with Maven: %w: %s", Version, err, proc.LastLine(out))
	}
	if err := os.Rename(filepath.Join(work, "libs"), libs); err != nil {
		return fmt.Errorf("kafka: keep the download: %w", err)
	}
	return nil
}
