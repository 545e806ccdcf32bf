-- name: InsertSale :exec
INSERT INTO sales (item) VALUES (?);
