// Package certificate makes certificates for servers that tests start.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Certificate is a self-signed certificate for 127.0.0.1, and for no host name.
type Certificate struct {
	certificate, key []byte
}

// New makes a certificate that is valid for a day.
func New() (Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "outmill test"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Certificate{}, fmt.Errorf("encode a key: %w", err)
	}
	return Certificate{
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// Client returns the configuration of a client that trusts the certificate.
func (c Certificate) Client() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.certificate)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// Server returns the configuration of a server that shows the certificate.
func (c Certificate) Server() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(c.certificate, c.key)
	if err != nil {
		return nil, fmt.Errorf("load a certificate: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, nil
}

// PEM returns the certificate without its key, in the format of files of authorities.
func (c Certificate) PEM() []byte { return c.certificate }

// KeyPEM returns the key.
func (c Certificate) KeyPEM() []byte { return c.key }

// Keystore returns the key and the certificate in one text, which Kafka and MongoDB can
// read.
func (c Certificate) Keystore() []byte {
	return append(append([]byte{}, c.key...), c.certificate...)
}
